"""What may be tried of products of matrices, and what runs untuned: rules over sizes and the limits of a card."""
