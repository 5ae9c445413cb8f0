from django.urls import path

from . import instances, repairs, views

urlpatterns = [
    path("plans/", views.PlanList.as_view(), name="plan-list"),
    path("plans/<int:pk>/", views.PlanDetail.as_view(), name="plan-detail"),
    path("control/", views.ControlView.as_view(), name="control"),
    path("plan/", views.CurrentPlan.as_view(), name="plan-current"),
    path("instances/", instances.InstanceList.as_view(), name="instances"),
    path("sleep-advice/", instances.SleepAdvice.as_view(), name="sleep-advice"),
    path("repairs/", repairs.RepairList.as_view(), name="repairs"),
    path("repairs/<path:key>/ignore/", repairs.RepairIgnore.as_view(), name="repair-ignore"),
]
