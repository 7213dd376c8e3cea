"""Audits, which can only refute: `exact` works on `log_prob`, `statistical` on draws."""
