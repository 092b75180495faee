"""The Python client's informer, controlled by test/tests/clients through stdin; it prints lines of JSON.

usage: informer.py KUBECONFIG NAMESPACE

It watches the ConfigMaps of a namespace, and prints all of them for each line ("dump") on stdin.
"""

import functools
import json
import logging
import sys

from kubernetes import client, config
from kubernetes.informer import ADDED, MODIFIED, SharedInformer

# While the server restarts, the informer logs every failed request.
logging.disable(logging.CRITICAL)


class Order:
    """Counts events with an older version of an object than a previous event."""

    def __init__(self):
        self.newest = {}
        self.back = 0
        self.events = 0

    def seen(self, found):
        self.events += 1
        name, version = found.metadata.name, int(found.metadata.resource_version)
        if version < self.newest.get(name, 0):
            self.back += 1
        else:
            self.newest[name] = version


def counting(function, traffic):
    """Returns the list function of an informer with counters for lists and watches."""

    # The watch derives the type of its objects from the signature.
    @functools.wraps(function)
    def counted(*args, **kwargs):
        response = function(*args, **kwargs)
        # A request that did not reach the server is not counted.
        traffic["resumed" if kwargs.get("watch") else "lists"]["configmaps"] += 1
        return response

    return counted


def dump(informer, order, traffic):
    for found in informer.cache.list():
        line = {
            "kind": "ConfigMap",
            "name": found.metadata.name,
            "resourceVersion": found.metadata.resource_version,
            "value": (found.data or {}).get("value", ""),
        }
        print(json.dumps(line))
    summary = {"back": order.back, "events": order.events, "traffic": traffic}
    print(json.dumps({"summary": summary}), flush=True)


def main(kubeconfig, namespace):
    config.load_kube_config(kubeconfig)
    order, traffic = Order(), {"lists": {"configmaps": 0}, "resumed": {"configmaps": 0}}
    list_function = counting(client.CoreV1Api().list_namespaced_config_map, traffic)
    informer = SharedInformer(list_function, namespace)
    # An object that a relist no longer contains is deleted in its last known version, so deletions have no order.
    for kind in (ADDED, MODIFIED):
        informer.add_event_handler(kind, order.seen)
    informer.start()
    for _ in sys.stdin:
        dump(informer, order, traffic)


main(*sys.argv[1:])
