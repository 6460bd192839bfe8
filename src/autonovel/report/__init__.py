"""What a person looks at. Reads run folders and imports nothing from the methods."""
