"""Accounting: theorems, composition, privacy loss, calibration, and the ledger."""
