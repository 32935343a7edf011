"""A broker against librdkafka's mock cluster, and a broker with a backlog, on one machine.

Everything runs in processes of its own: the broker, the mock, and the client that loads them. What
is compared is measured in turns, and a figure is the median of the rounds.
"""
