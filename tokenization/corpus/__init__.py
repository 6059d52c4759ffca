"""From documents to the blocks of pre-training, and the noise of other families' objectives."""
