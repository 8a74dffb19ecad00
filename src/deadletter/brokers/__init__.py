"""The engines that carry messages, one package each; none knows another."""
