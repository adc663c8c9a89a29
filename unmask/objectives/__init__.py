"""What a network is trained to do: one file per goal."""
