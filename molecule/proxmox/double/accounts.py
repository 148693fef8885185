"""/access: users, groups, roles, tokens and the access list, each with its state."""

from __future__ import annotations

from typing import Any

from fakepve.routing import die, param_error, split_list

from .directory import Directory, Rule, Token, User

Values = dict[str, Any]
ACL_ROOTS = ("access", "mapping", "nodes", "pool", "sdn", "storage", "vms")
DETAILS = ("comment", "email", "firstname", "lastname", "keys")


class AccountsApi:
    """Mixin of the double: the calls under /access."""

    directory: Directory

    def _routes_access(self) -> list[tuple[str, str, Any]]:
        users, user, token = "/access/users", "/access/users/{userid}", "/access/users/{userid}/token/{tokenid}"
        return [
            ("GET", "/access/permissions", self._permissions),
            ("GET", "/access/acl", self._acl_list),
            ("PUT", "/access/acl", self._acl_change),
            ("GET", "/access/roles", self._role_list),
            ("POST", "/access/roles", self._role_create),
            ("GET", "/access/roles/{roleid}", self._role_read),
            ("PUT", "/access/roles/{roleid}", self._role_update),
            ("DELETE", "/access/roles/{roleid}", self._role_delete),
            ("GET", "/access/groups", self._group_list),
            ("POST", "/access/groups", self._group_create),
            ("GET", "/access/groups/{groupid}", self._group_read),
            ("PUT", "/access/groups/{groupid}", self._group_update),
            ("DELETE", "/access/groups/{groupid}", self._group_delete),
            ("GET", users, self._user_list),
            ("POST", users, self._user_create),
            ("GET", user, self._user_read),
            ("PUT", user, self._user_update),
            ("DELETE", user, self._user_delete),
            ("GET", user + "/token", self._token_list),
            ("GET", token, self._token_read),
            ("POST", token, self._token_create),
            ("PUT", token, self._token_update),
            ("DELETE", token, self._token_delete),
        ]

    # ----------------------------------------------------------- permissions

    async def _permissions(self, v: Values, user: str) -> Values:
        who = v.get("userid") or user
        if who not in (user, user.split("!")[0]):
            self.check(user, "/access", "Sys.Audit")
        self._sync_directory()
        if v.get("path"):
            found = {v["path"]: self.directory.permissions(who, v["path"])}
        else:
            found = self.directory.all_permissions(who)
        return {path: {name: int(value) for name, value in sorted(held.items())} for path, held in found.items()}

    async def _acl_list(self, v: Values, user: str) -> list[Values]:
        rules = sorted(self.directory.rules, key=lambda rule: (rule.path, rule.kind, rule.name, rule.role))
        everything = self.allowed(user, "/access", "Sys.Audit") or self.allowed(user, "/access", "Permissions.Modify")
        return [
            {"path": r.path, "type": r.kind, "ugid": r.name, "roleid": r.role, "propagate": int(r.propagate)}
            for r in rules
            if everything or self.allowed(user, r.path, "Permissions.Modify")
        ]

    async def _acl_change(self, v: Values, user: str) -> None:
        path = "/" + "/".join(part for part in v["path"].split("/") if part)
        if path != "/" and path.split("/")[1] not in ACL_ROOTS:
            raise param_error(path=f"invalid ACL path '{v['path']}'")
        names = [(kind, name) for kind in ("user", "group", "token") for name in split_list(v.get(f"{kind}s"))]
        if not names:
            raise param_error(users="either 'users', 'groups' or 'tokens' is required.")
        delete = bool(v.get("delete"))
        propagate = bool(v.get("propagate", True))
        rules = []
        for role in split_list(v["roles"]):
            if role not in self.directory.roles:
                raise die(f"ACL update failed: role '{role}' does not exist")
            for kind, name in names:
                if not self._exists(kind, name) and not delete:
                    raise die(f"ACL update failed: {kind} '{name}' does not exist")
                rules.append(Rule(path, kind, name, role, propagate))
        for rule in rules:
            self.directory.set_rule(rule, delete)

    def _exists(self, kind: str, name: str) -> bool:
        if kind == "group":
            return name in self.directory.groups
        account, _, token = name.partition("!")
        found = self.directory.users.get(account)
        return found is not None and (kind == "user" or token in found.tokens)

    # ----------------------------------------------------------------- roles

    def _privileges_of(self, text: Any) -> frozenset[str]:
        names = frozenset(split_list(text))
        unknown = sorted(names - self.directory.known)
        if unknown:
            raise param_error(privs=f"invalid format - invalid privilege '{unknown[0]}'\n")
        return names

    async def _role_list(self, v: Values, user: str) -> list[Values]:
        return [
            {"roleid": name, "privs": ",".join(sorted(held)), "special": int(name in self.directory.built_in)}
            for name, held in sorted(self.directory.roles.items())
        ]

    def _role(self, name: str) -> frozenset[str]:
        if name not in self.directory.roles:
            raise die(f"role '{name}' does not exist")
        return self.directory.roles[name]

    async def _role_read(self, v: Values, user: str) -> Values:
        return dict.fromkeys(sorted(self._role(v["roleid"])), 1)

    async def _role_create(self, v: Values, user: str) -> None:
        if v["roleid"] in self.directory.roles:
            raise die(f"create role failed: role '{v['roleid']}' already exists")
        self.directory.roles[v["roleid"]] = self._privileges_of(v.get("privs"))

    async def _role_update(self, v: Values, user: str) -> None:
        name = v["roleid"]
        if name in self.directory.built_in:
            raise die(f"auto-generated role '{name}' cannot be modified")
        before = self._role(name)
        new = self._privileges_of(v.get("privs"))
        self.directory.roles[name] = before | new if v.get("append") else new

    async def _role_delete(self, v: Values, user: str) -> None:
        name = v["roleid"]
        if name in self.directory.built_in:
            raise die(f"auto-generated role '{name}' cannot be deleted")
        self._role(name)
        del self.directory.roles[name]
        self.directory.forget("role", name)

    # ---------------------------------------------------------------- groups

    async def _group_list(self, v: Values, user: str) -> list[Values]:
        return [self._group_view(name) for name in sorted(self.directory.groups)]

    def _group_view(self, name: str) -> Values:
        members = ",".join(sorted(each.name for each in self.directory.users.values() if name in each.groups))
        comment = self.directory.groups[name]
        return {"groupid": name, "users": members, **({"comment": comment} if comment else {})}

    def _group(self, name: str) -> str:
        if name not in self.directory.groups:
            raise die(f"group '{name}' does not exist")
        return name

    async def _group_read(self, v: Values, user: str) -> Values:
        view = self._group_view(self._group(v["groupid"]))
        members = [name for name in view["users"].split(",") if name]
        return {"members": members, **({"comment": view["comment"]} if "comment" in view else {})}

    async def _group_create(self, v: Values, user: str) -> None:
        if v["groupid"] in self.directory.groups:
            raise die(f"create group failed: group '{v['groupid']}' already exists")
        self.directory.groups[v["groupid"]] = v.get("comment")

    async def _group_update(self, v: Values, user: str) -> None:
        self.directory.groups[self._group(v["groupid"])] = v.get("comment")

    async def _group_delete(self, v: Values, user: str) -> None:
        name = self._group(v["groupid"])
        del self.directory.groups[name]
        for each in self.directory.users.values():
            each.groups.discard(name)
        self.directory.forget("group", name)

    # ----------------------------------------------------------------- users

    def _user(self, name: str, doing: str = "") -> User:
        if name not in self.directory.users:
            raise die(f"{doing}no such user ('{name}')")
        return self.directory.users[name]

    def _user_view(self, user: User, full: bool = False) -> Values:
        view: Values = {"enable": int(user.enable), "expire": user.expire, **user.details}
        if full:
            view["groups"] = ",".join(sorted(user.groups))
            view["tokens"] = [{"tokenid": name, **self._token_view(t)} for name, t in sorted(user.tokens.items())]
        return view

    async def _user_list(self, v: Values, user: str) -> list[Values]:
        own = user.split("!")[0]
        audits = any(self.allowed(user, "/access/groups", name) for name in ("User.Modify", "Sys.Audit"))
        return [
            {"userid": name, "realm-type": name.rpartition("@")[2], **self._user_view(each, bool(v.get("full")))}
            for name, each in sorted(self.directory.users.items())
            if (audits or name == own) and v.get("enabled") in (None, int(each.enable))
        ]

    async def _user_read(self, v: Values, user: str) -> Values:
        found = self._user(v["userid"])
        tokens = {name: self._token_view(token) for name, token in sorted(found.tokens.items())}
        view = {**self._user_view(found), "groups": sorted(found.groups)}
        return {**view, "tokens": tokens} if tokens else view

    def _groups_of(self, v: Values) -> set[str]:
        groups = set(split_list(v.get("groups")))
        for name in sorted(groups - set(self.directory.groups)):
            raise die(f"no such group '{name}'")
        return groups

    async def _user_create(self, v: Values, user: str) -> None:
        name = v["userid"]
        if name.rpartition("@")[2] not in ("pam", "pve"):
            raise die(f"create user failed: domain '{name.rpartition('@')[2]}' does not exist")
        if name in self.directory.users:
            raise die(f"create user failed: user '{name}' already exists")
        made = User(name, bool(v.get("enable", True)), int(v.get("expire") or 0), self._groups_of(v))
        made.details = {key: v[key] for key in DETAILS if v.get(key)}
        self.directory.users[name] = made
        if v.get("password"):
            self.users[name] = v["password"]

    async def _user_update(self, v: Values, user: str) -> None:
        found = self._user(v["userid"], "update user failed: ")
        if "enable" in v:
            found.enable = bool(v["enable"])
        if "expire" in v:
            found.expire = int(v["expire"])
        if "groups" in v:
            groups = self._groups_of(v)
            found.groups = found.groups | groups if v.get("append") else groups
        found.details.update({key: v[key] for key in DETAILS if key in v})

    async def _user_delete(self, v: Values, user: str) -> None:
        found = self._user(v["userid"], "delete user failed: ")
        if found.name == user.split("!")[0]:
            raise die("delete user failed: unable to delete own user")
        del self.directory.users[found.name]
        self.users.pop(found.name, None)
        self.directory.forget("user", found.name)

    # ---------------------------------------------------------------- tokens

    @staticmethod
    def _token_view(token: Token) -> Values:
        view: Values = {"privsep": int(token.privsep), "expire": token.expire}
        return {**view, "comment": token.comment} if token.comment else view

    def _token(self, v: Values) -> Token:
        found = self._user(v["userid"]).tokens.get(v["tokenid"])
        if found is None:
            raise die(f"no such token '{v['tokenid']}' for user '{v['userid']}'")
        return found

    async def _token_list(self, v: Values, user: str) -> list[Values]:
        tokens = self._user(v["userid"]).tokens
        return [{"tokenid": name, **self._token_view(token)} for name, token in sorted(tokens.items())]

    async def _token_read(self, v: Values, user: str) -> Values:
        return self._token_view(self._token(v))

    async def _token_create(self, v: Values, user: str) -> Values:
        if v["tokenid"] in self._user(v["userid"]).tokens:
            raise param_error(tokenid="Token already exists.")
        token = self.directory.add_token(v["userid"], v["tokenid"], bool(v.get("privsep", True)))
        token.expire, token.comment = int(v.get("expire") or 0), v.get("comment")
        info = {key: str(value) for key, value in self._token_view(token).items()}
        return {"full-tokenid": f"{v['userid']}!{v['tokenid']}", "value": token.secret, "info": info}

    async def _token_update(self, v: Values, user: str) -> Values:
        token = self._token(v)
        token.privsep = bool(v.get("privsep", token.privsep))
        token.expire = int(v.get("expire", token.expire))
        token.comment = v.get("comment", token.comment)
        return self._token_view(token)

    async def _token_delete(self, v: Values, user: str) -> None:
        self._token(v)
        del self.directory.users[v["userid"]].tokens[v["tokenid"]]
        self.directory.forget("token", f"{v['userid']}!{v['tokenid']}")
