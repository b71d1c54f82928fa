"""What the limits should be. Meets admission only in the shared store."""
