"""What a backend author and a test need: contracts, fakes, a simulated world."""
