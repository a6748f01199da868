"""Loaded by every Python process of a run that has this folder on its path: notes whom it wants to talk to.

Names that are looked up and addresses that are connected to are written to the file that NETWORK_LOG names, unless they
are this machine's own; and they are refused, as on a machine without a network.
"""

import ipaddress
import os
import socket
import sys

_connect, _connect_ex, _look_up = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo


def _is_here(host):
    if host in (None, "", "localhost", b"localhost", socket.gethostname()):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _refuse_elsewhere(host):
    if not _is_here(host):
        with open(os.environ["NETWORK_LOG"], "a") as log:
            log.write(f"{host} by {' '.join(sys.argv)[:200]}\n")
        raise OSError(f"there is no network here; {host} was asked for")


def _guarded(connect):
    def guarded(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6):
            _refuse_elsewhere(address[0])
        return connect(self, address)

    return guarded


def _guarded_look_up(host, *arguments, **named):
    _refuse_elsewhere(host)
    return _look_up(host, *arguments, **named)


socket.socket.connect = _guarded(_connect)
socket.socket.connect_ex = _guarded(_connect_ex)
socket.getaddrinfo = _guarded_look_up
