"""The search language: text to a tree, and letters judged by it."""
