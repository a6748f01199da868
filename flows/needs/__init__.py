"""What an ablation needs, estimated before anything is computed: work, disk and memory."""
