"""Access control, logins and permissions: the one place that decides; front-ends only ask.

    login = await access.login(Password("alice", b"..."), Peer("10.1.2.3"))    # or LoginRefused
    identity = login.enter("/")                                                # or VhostRefused
    identity.check(WRITE, QUEUE, "orders")                                     # or NotPermitted

access.py        puts the rest together: what a running broker asks.
  v
accounts.py      all who know users, asked in order:
  v
accounts_of_file.py: the users file.  tokens.py: who signs tokens, with scopes.py and, for people, openid.py.
asked_way.py: whom logins are asked of: web_hook.py, a service, and directory_users.py, a directory.
  v
login.py         `Login`: who somebody is. `Identity`: that of a connection in a virtual host.
  v
rights.py        what one user may do in one virtual host.
  v
name_patterns.py  passwords.py  throttle.py  credentials.py  loopback.py
                 key_cover.py: what a pattern covers of a binding.
"""
