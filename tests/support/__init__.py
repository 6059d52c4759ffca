"""What tests share: factories, stand-ins and readers."""
