"""What a build says beside its result."""


class ShippingNotice(UserWarning):
    """Something is left out of what is built, or less is known of it than could be."""
