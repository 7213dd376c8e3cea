"""How guarantees add up: theorems, composition, privacy loss, calibration, the ledger."""
