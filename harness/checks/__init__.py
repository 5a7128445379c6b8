"""The checks: plain functions from a spec, inputs and a lane to findings."""
