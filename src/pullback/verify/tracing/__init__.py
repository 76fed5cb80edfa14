"""The effects of one call on memory: kept, shared, changed, never written."""
