"""What engines say of themselves. An unknown figure is None, never zero."""
