"""Models to shard: each is a torchtitan model that knows no mesh, with recipes that need no download."""
