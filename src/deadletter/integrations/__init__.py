"""
Integrations of task queues as they are: their workers file what fails for good.

    celery     deadletter.integrations.celery.install(app)
    dramatiq   broker.add_middleware(DeadLetters())
    rq         deadletter.integrations.rq.install(worker)

Nothing is imported or opened here: each module needs the task queue that it is for.
"""
