"""Generated wire classes; `make proto` renews them from `forebay.proto`."""
