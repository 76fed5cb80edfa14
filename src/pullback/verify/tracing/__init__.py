"""What one call leaves in memory: kept, shared, changed, never written."""
