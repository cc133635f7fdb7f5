"""Who may do what: rules of policies, rights of tokens, the table of what each call needs, logins."""
