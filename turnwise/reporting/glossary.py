"""The words of a report, each in a sentence: the first of its entry in docs/glossary.md, as a test holds."""

from collections.abc import Mapping

GLOSSARY: Mapping[str, str] = {
    "Variant": "One method of an ablation: the options that it changes.",
    "Seed": "The number that fixes all random draws of a training run.",
    "Turn": "One reply of the policy, and what the world answers to it.",
    "Episode": "One attempt at a task, from the first observation to the end.",
    "Warm start": "The policy after it has imitated demonstrations and before reinforcement "
    "learning; elsewhere called SFT model.",
    "Baseline policy": "A scripted policy that every table shows for comparison: random, the oracle, "
    "and, for questions, closed-book, which answers without searching.",
    "Oracle": "A scripted policy that knows the answer.",
    "Success": "The share of episodes that are solved.",
    "Sampled": "Played with the policy's own randomness, as in training.",
    "Greedy": "Played with the likeliest token each time, without randomness.",
    "Normalised": "On the scale on which the random policy is 0 and the oracle is 1.",
    "Confidence interval": "The range in which the true value plausibly lies.",
    "p value": "How often chance alone would show a difference as large as the one that was seen, if there were none.",
    "Holm's correction": "Raises the p values when several comparisons are made at once: among many, one would "
    "otherwise look like a finding by chance.",
    "Interquartile mean": "The mean without the lowest and the highest quarter: one lucky run does not decide it.",
    "Performance profile": "For each success, the share of runs that reached at least that.",
    "Credit": "How much each turn or token is taken to have contributed to the rewards of its episode.",
    "Advantage": "The result of a credit rule: how much better a turn went than was to be expected.",
    "Entropy": "How undecided the policy is about the next token, in nats.",
    "KL": "The Kullback-Leibler divergence between two policies, in nats: how far the trained policy "
    "is from the warm start.",
    "Mismatch": "The difference between the log-probabilities that the engine sampled with and those "
    "that the learner computes for the same tokens.",
    "Zero-variance group": "A group whose episodes all got the same reward.",
    "Alarm": "A bound on a monitor.",
    "Lineage": "Everything that an artifact was made from: code, parameters, inputs, platform.",
}
