"""The detection of a lag's gradient signal in noise between sequences."""
