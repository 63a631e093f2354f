"""Plans, meshes and differences as people read them."""
