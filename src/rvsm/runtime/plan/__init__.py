"""What is computed: operations on numbered values, with their weights; no layouts, no addresses, no code."""
