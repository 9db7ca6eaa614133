"""Fine-tuning, several seeds at once: one loop, its metrics and its checkpoints."""
