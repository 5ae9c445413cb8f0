from django.urls import path

from . import frontier, operations, queries, repairs, views, webhooks

urlpatterns = [
    path("plans/", views.PlanList.as_view(), name="plan-list"),
    path("plans/<int:pk>/", views.PlanDetail.as_view(), name="plan-detail"),
    path("plans/<int:pk>/trail/", views.PlanTrail.as_view(), name="plan-trail"),
    path("control/", views.ControlView.as_view(), name="control"),
    path("applications/<str:name>/queries/", queries.ApplicationQueries.as_view(), name="application-queries"),
    path("tasks/", operations.OperationList.as_view(), name="tasks"),
    path("webhooks/", webhooks.WebhookList.as_view(), name="webhooks"),
    path("webhooks/<str:name>/", webhooks.WebhookDetail.as_view(), name="webhook"),
    path("webhooks/<str:name>/test/", webhooks.WebhookTest.as_view(), name="webhook-test"),
    path("applications/<str:name>/frontier/", frontier.ApplicationFrontier.as_view(), name="application-frontier"),
    path("applications/<str:name>/slo/", frontier.ApplicationSlo.as_view(), name="application-slo"),
    path("plan/", views.CurrentPlan.as_view(), name="plan-current"),
    path("repairs/", repairs.RepairList.as_view(), name="repairs"),
    path("repairs/<path:key>/ignore/", repairs.RepairIgnore.as_view(), name="repair-ignore"),
]
