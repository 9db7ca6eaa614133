"""The parts that analyses share: none of them asks a question."""
