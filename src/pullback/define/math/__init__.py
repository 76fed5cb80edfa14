"""The mathematics after `=`: one graph, its functions, its text, its derivatives, its costs."""
