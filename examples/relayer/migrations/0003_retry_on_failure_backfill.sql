-- An older API that runs beside a newer one writes null.
UPDATE transactions SET retry_on_failure = FALSE WHERE retry_on_failure IS NULL;
