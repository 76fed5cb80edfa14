"""An author's kernel -> a shared library in the cache."""
