"""Plans, which define what is computed: operations on numbered values, without layouts, addresses or code."""
