"""Stages from rewards to advantages: selection of groups, scores of models, credit."""
