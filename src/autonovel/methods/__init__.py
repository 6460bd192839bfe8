"""What can be learned, one method a file; ``registry`` finds them by name and ``base`` says what a method is."""
