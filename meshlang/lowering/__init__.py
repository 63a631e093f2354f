"""A plan on a device mesh: the first import of torch, and none of torchtitan."""
