"""One file per format; each renders a Diagnosis and knows nothing of how it was found."""
