"""What everything else uses: errors and their sentences, printing, randomness."""
