-- Ends a statement that cannot do all it was asked to, and undoes what it did.
CREATE FUNCTION deadletter.insist(met boolean) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    IF NOT met THEN
        RAISE EXCEPTION 'not all of it can be done' USING ERRCODE = 'DL001';
    END IF;
    RETURN true;
END
$$;
