"""What the machine itself can do, measured in the same run as what is held against it."""
