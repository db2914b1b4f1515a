"""Access control, logins and permissions: the one place that decides; front-ends only ask.

    login = await access.login(Password("alice", b"..."), Peer("10.1.2.3"))    # or LoginRefused
    identity = login.enter("/")                                                # or VhostRefused
    identity.check(WRITE, QUEUE, "orders")                                     # or NotPermitted

access.py        puts the rest together: what a running broker asks.
  v
accounts.py      all who know users, asked in order:
  v
user_passwords.py: the users file.  tokens.py: who signs tokens.  web_hook.py: a service.
  v
login.py         `Login`: who somebody is. `Identity`: that of a connection in a virtual host.
  v
rights.py        what one user may do in one virtual host.
  v
name_patterns.py  passwords.py  throttle.py  credentials.py  loopback.py
                 key_cover.py: what a pattern covers of a binding.
"""
