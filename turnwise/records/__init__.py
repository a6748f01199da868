"""What is recorded of an ablation, and what recorded runs answer: numbers, episodes, sources, reruns, other credit."""
