"""Every fp32 bit pattern through an elementwise cast, and the count of what came out wrong."""
