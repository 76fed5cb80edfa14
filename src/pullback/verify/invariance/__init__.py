"""The same target called otherwise: other strides, sizes, options, values; what has to stay."""
