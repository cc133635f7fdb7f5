"""Pure: intents become transactions: each function adds to a `Draft` what carrying out one intent writes."""
