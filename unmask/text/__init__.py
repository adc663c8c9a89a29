"""From text to token shards. Nothing here imports torch."""
